"""Answers each request `DELAY BYTES`, or GET /DELAY/BYTES, after that delay."""

import socket
import threading
import time


def serve(connection):
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            words = line.decode().split()
            if words[:1] == ["GET"]:
                delay_s, size = words[1].strip("/").split("/")
                time.sleep(float(delay_s))
                head = f"HTTP/1.0 200 OK\r\nContent-Length: {size}\r\n\r\n"
                connection.sendall(head.encode() + b"x" * int(size))
                return
            time.sleep(float(words[0]))
            connection.sendall(b"x" * int(words[1]))


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

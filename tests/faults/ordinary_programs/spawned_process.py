import multiprocessing

import flightlog


def work(queue):
    with flightlog.span("child"):
        queue.put("from the child")


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with flightlog.record("x"):
        queue = context.Queue()
        child = context.Process(target=work, args=(queue,))
        child.start()
        print(queue.get())
        child.join()
        print(child.exitcode)

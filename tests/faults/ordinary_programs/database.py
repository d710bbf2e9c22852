import sqlite3

import flightlog

with flightlog.record("x"):
    with sqlite3.connect("table.db") as connection:
        connection.execute("create table points (x integer)")
        for i in range(300):
            with flightlog.span("insert", i=i):
                connection.execute("insert into points values (?)", (i,))
    print(connection.execute("select sum(x) from points").fetchone())
    connection.close()

import asyncio
import contextvars

import flightlog

mine = contextvars.ContextVar("mine", default="nothing")


async def work(i):
    mine.set(i)
    async with flightlog.span("work", i=i):
        await asyncio.sleep(0.001)
        assert mine.get() == i
        if i == 3:
            raise LookupError(i)


async def main():
    try:
        async with asyncio.TaskGroup() as group:
            for i in range(20):
                group.create_task(work(i))
    except* LookupError as found:
        print(found.exceptions)
    try:
        async with asyncio.timeout(0.02):
            async with flightlog.span("slow"):
                await asyncio.sleep(60)
    except TimeoutError:
        print("timed out", mine.get())


with flightlog.record("x"):
    asyncio.run(main())

import os
import shutil
import tempfile

import flightlog

folder = tempfile.mkdtemp()
os.chdir(folder)
with flightlog.record("x"), flightlog.span("step"):
    shutil.rmtree(folder)
    try:
        os.getcwd()
    except FileNotFoundError:
        print("gone")

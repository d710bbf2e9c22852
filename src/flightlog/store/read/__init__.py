"""Reading the files of a run, with tolerance and in bounded memory."""

"""`flightlog run`: any command recorded as a run, its output and its signals passed on."""

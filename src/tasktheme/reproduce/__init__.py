"""The whole paper: its figures as a plan of pieces, each one command of this program."""

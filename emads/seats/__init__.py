"""Players of single seats: who they are in words, scripts, persons, and how endpoints are asked and paid."""

STOPPED = 8  # exit status: an endpoint failed, or the cost limit is reached; the same command goes on

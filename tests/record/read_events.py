"""Prints the scalars of a folder of event files as TensorBoard reads them."""
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for s in events.Scalars(tag):
        print(tag, s.step, "%.6g" % s.value)

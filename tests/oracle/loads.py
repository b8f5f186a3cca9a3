"""Whether Transformers takes the config.json of each folder named: prints the first that it refuses, and why."""
import sys

import transformers

for folder in sys.argv[1:]:
    try:
        transformers.AutoConfig.from_pretrained(folder)
    except Exception as e:
        sys.exit(f"{folder}: {e}")

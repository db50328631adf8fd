import sys

from sparkwap.cli import main

sys.exit(main())

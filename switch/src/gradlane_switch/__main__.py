# SPDX-License-Identifier: Apache-2.0
"""`python -m gradlane_switch` is the command `gradlane-switch`."""

import sys

from gradlane_switch.cli import main

sys.exit(main())

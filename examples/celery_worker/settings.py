"""The URLs of broker and databases: by default folders and files, which need no server."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))
BROKER = os.environ.get("BROKER_URL", "filesystem://")
ROWS = os.environ.get("DATABASE_URL", f"sqlite:///{FOLDER}/shop.db")
IDS = os.environ.get("ALLOCATOR_DATABASE_URL", f"sqlite:///{FOLDER}/ids.db")

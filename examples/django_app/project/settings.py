"""SQLite by default; DATABASE_URL takes a server: postgresql://user:password@host/name."""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import django

FOLDER = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parent.parent))
SECRET_KEY = os.environ.get("SECRET_KEY", "only for trying it out")
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "project.urls"
STATIC_URL = "static/"
USE_TZ = True

INSTALLED_APPS = [
    "allocator.integrations.django",  # so that `migrate` creates the allocator's tables too
    "shop",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "shop.sqlite3",
        "OPTIONS": {"timeout": 20} | ({"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {}),
    }
}
if url := os.environ.get("DATABASE_URL"):
    parts = urlsplit(url)
    DATABASES["default"] = {
        "ENGINE": f"django.db.backends.{parts.scheme}",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": parts.password,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }

# Ids come from the database of the rows; for SQLite from the separate file shop.ids.sqlite3. ALLOCATOR changes this.
if ids := os.environ.get("ALLOCATOR_DATABASE_URL"):
    ALLOCATOR = {"database": ids, "timeout": 10}

# Ids of tests come from a file of their own, which all processes of all runs share.
if "test" in sys.argv:
    ALLOCATOR = {"database": f"sqlite:///{FOLDER}/test-ids.db", "start_after": 1_000_000}

"""`celery --app tasks worker --pool prefork --concurrency 2`."""

from celery import Celery
from celery.signals import worker_init, worker_process_init
from settings import BROKER, FOLDER
from shop import engine, insert, metadata

app = Celery("tasks", broker=BROKER, backend=f"file://{FOLDER}/results")
if BROKER == "filesystem://":
    for name in ("queue", "results"):
        (FOLDER / name).mkdir(exist_ok=True)
    folders = ("data_folder_in", "data_folder_out", "control_folder")
    app.conf.broker_transport_options = dict.fromkeys(folders, str(FOLDER / "queue"))


@worker_init.connect
def make_table(**signal):
    metadata.create_all(engine)
    insert(["from the parent, before it forks"])


@worker_process_init.connect
def forget_connections(**signal):
    engine.dispose(close=False)  # SQLAlchemy's engine needs this after a fork; the allocator does not


@app.task
def place(customers):
    return insert(customers)

"""What processes and threads need here: forks, a pool of workers, waiting, re-entrancy."""

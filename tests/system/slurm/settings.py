"""The configuration files of a Slurm that lives in one folder and on loopback."""

from __future__ import annotations

import os
from pathlib import Path

NODES = 3
CPUS = 8
"""Of each node, whatever the machine has."""
MEMORY_MB = 8000
"""Of each node; nothing but a job's own limit ends it for memory."""
PARTITION = "debug"
ACCOUNT = "lab"


def slurm_conf(folder: Path, ports: list[int], host: str) -> str:
    """`slurm.conf`; ports: slurmctld's, slurmdbd's, then one a node."""
    nodes = "\n".join(
        f"NodeName=n{i} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} "
        f"CPUs={CPUS} RealMemory={MEMORY_MB} State=UNKNOWN"
        for i, port in enumerate(ports[2:], 1)
    )
    return f"""\
ClusterName=flight
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,bf_interval=5
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MinJobAge=600
KillWait=20
InactiveLimit=0
WaitTime=0
SlurmctldTimeout=60
SlurmdTimeout=60
DefMemPerCPU=200
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={folder}/munge.socket
AccountingStoreFlags=job_comment
{nodes}
PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=60 DefaultTime=10 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL Default=NO MaxTime=60 DefaultTime=10 State=UP PriorityTier=2
"""


def slurmdbd_conf(folder: Path, port: int, database_port: int, password: str) -> str:
    """`slurmdbd.conf`."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct
"""


def write_private(file: Path, text: str | bytes) -> None:
    """A file that only its owner reads, as Slurm and munge insist on."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(text.encode() if isinstance(text, str) else text)

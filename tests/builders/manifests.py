"""A manifest that says all that a manifest can say."""

from __future__ import annotations

WHOLE = """\
version: 1
project:
  name: sir
  default_storage: s3://bucket/${SITE:-here}
  local_cache: .cache
targets:
  local: {provider: local, max_workers: "${N:-4}", processes: yes, threads_per_worker: 1}
  cluster:
    provider: slurm
    overlay: big
    partition: ${PARTITION}
    walltime: 1-00:00:00
    memory: 32GB
    cost: {currency: EUR, per_cpu_hour: 0.05, per_gb_hour: 0.01}
components:
  model:
    cpus: ${CPUS:-2}
    memory: 16G
    gpus: 0.5
    walltime: 1:30:00
    image: model:1.10
    runtime: apptainer
    env: {OMP_NUM_THREADS: 4, TOKEN: "${TOKEN}", COUNTRY: NO, EMPTY: }
    mounts: {/data: /mnt/data}
    tags: [fast, 2026]
    preload_script: setup.py
  plain:
tasks:
  simulate:
    component: model
    cache: {version: 2, ttl: 7d, ignore: [verbose], store: /cache}
    retries: 2
    timeout: 10m
    outputs: [out.csv]
  plot: {cache: off}
  keep: {cache: true}
overlays:
  big:
    components: {model: {memory: 64G, walltime: null, env: {EXTRA: $$1}}}
    targets: {cluster: {max_workers: 100}}
"""

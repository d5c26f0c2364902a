# Two images. `docker build --target runtime -t device-tuner .` runs bundles: no PyTorch, no compiler.
# `docker build --target demo -t device-tuner-demo .` tunes as well; its command is the demonstration on digits.
FROM python:3.11-slim AS wheel
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY tuner tuner
COPY plugins plugins
COPY docs docs
COPY search_spaces search_spaces
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.11-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1
COPY constraints.txt /
RUN useradd --create-home --uid 1000 tuner && install --directory --owner tuner /data
WORKDIR /data
ENTRYPOINT ["tuner"]

# PyTorch is a layer of its own, which a change of this project's code does not build again.
FROM base AS demo
RUN pip install --constraint /constraints.txt --no-deps --index-url https://download.pytorch.org/whl/cpu torch torchvision
COPY --from=wheel /wheel /wheel
RUN pip install --constraint /constraints.txt "$(echo /wheel/*.whl)[demo]"
USER tuner
CMD ["demo"]

FROM base AS runtime
COPY --from=wheel /wheel /wheel
RUN pip install --constraint /constraints.txt /wheel/*.whl
USER tuner
CMD ["--help"]

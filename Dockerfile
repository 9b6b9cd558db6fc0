# The command line and the service of allocator, with the drivers of all databases:
#
#     docker build --tag allocator .
#     docker run --rm allocator inspect 5016762319896585
#     docker run --publish 127.0.0.1:8000:8000 --env ALLOCATOR_DATABASE_URL=postgresql+psycopg://… allocator
#
# The last command starts the service. Its clients need a token; create one in the same database with: allocator tokens
# create NAME
#
# compose.yaml adds a database and shows how to create the first token. The image has no database and no volume: ids from
# a file that disappears with its container would be issued twice.
#
# Another base:              --build-arg PYTHON_IMAGE=…; any with Python 3.11 or later, venv and useradd
# Another package index:     --secret id=pip,src=pip.conf; only pip sees it; no layer contains it

ARG PYTHON_IMAGE=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
RUN python -m venv /tools && python -m venv --without-pip /opt/allocator
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY allocator allocator
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=cache,target=/root/.cache/pip \
    /tools/bin/pip wheel --no-deps --wheel-dir /wheels . \
    && /tools/bin/pip --python /opt/allocator/bin/python install \
       "$(echo /wheels/segment_allocator-*.whl)[server,postgres,mysql]"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin allocator
COPY --from=build /opt/allocator /opt/allocator
ENV PATH=/opt/allocator/bin:$PATH ALLOCATOR_HOST=0.0.0.0
# A number, so that Kubernetes can verify that it is not root (runAsNonRoot).
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["python", "-c", "\
import os, ssl, urllib.request as r; \
name = 'https' if 'ALLOCATOR_CERTIFICATE' in os.environ else 'http'; \
port = os.environ.get('ALLOCATOR_PORT', '8000'); \
port = port if port.isdecimal() else '8000'; \
here = [r.ProxyHandler({}), r.HTTPSHandler(context=ssl._create_unverified_context())]; \
r.build_opener(*here).open(f'{name}://127.0.0.1:{port}/healthz', timeout=4)"]
ENTRYPOINT ["allocator"]
CMD ["serve"]

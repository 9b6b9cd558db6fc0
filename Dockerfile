# The command line and the service of allocator, with the drivers of all databases:
#
#     docker build --tag allocator .
#     docker run --rm allocator inspect 5016762319896585
#     docker run --publish 127.0.0.1:8000:8000 --env ALLOCATOR_DATABASE_URL=postgresql+psycopg://… allocator
#
# The last one serves callers with a token; make the first one with: allocator tokens create NAME, in the same database.
#
# compose.yaml brings a database with it, and says how the first token is made. There is no database in here, and no
# place for one: ids from a file that goes away with its container would come twice.
#
# Another base:              --build-arg PYTHON_IMAGE=…; any with Python 3.11 or later, venv and useradd
# Another package index:     --secret id=pip,src=pip.conf; it is there while pip runs, and in no layer

ARG PYTHON_IMAGE=python:3.13-slim

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
       "$(echo /wheels/segment_allocator-*.whl)[server,postgres,mysql,client]"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin allocator
COPY --from=build /opt/allocator /opt/allocator
ENV PATH=/opt/allocator/bin:$PATH ALLOCATOR_HOST=0.0.0.0
# a number, so that Kubernetes too can see that it is not root
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["python", "-c", "\
import os, ssl, urllib.request as r; \
name = 'https' if 'ALLOCATOR_CERTIFICATE' in os.environ else 'http'; \
port = os.environ.get('ALLOCATOR_PORT', '8000'); \
here = [r.ProxyHandler({}), r.HTTPSHandler(context=ssl._create_unverified_context())]; \
r.build_opener(*here).open(f'{name}://127.0.0.1:{port}/healthz', timeout=4)"]
ENTRYPOINT ["allocator"]
CMD ["serve"]

# A client: atlasc query, encrypt and decrypt. Build it where the wheel is (make wheels):
#
#   docker build -f packaging/docker/client.Dockerfile -t atlasc-client .
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL -v atlasc-client:/client -v "$PWD:/data:ro" \
#     atlasc-client query https://host:8000 --input /data/texts.txt \
#     --token-file /client/token --folder /client/service
#
# The volume /client holds the secret key, the ledger of queries and the token: keep it on this
# machine, and never give a copy of it to a second one. The image holds none of them.
FROM debian:13.2-slim@sha256:4bcb9db66237237d03b55b969271728dd3d955eaaa254b9db8a3db94550b1885

RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/atlasc \
 && useradd --system --uid 10001 --home-dir /client --shell /usr/sbin/nologin atlasc \
 && install -d -o atlasc -g atlasc -m 0700 /client

COPY constraints.txt dist/atlasc-*-cp313-cp313-manylinux_*_x86_64.whl /tmp/
RUN wheel="$(ls /tmp/atlasc-*.whl)" \
 && /opt/atlasc/bin/pip install --no-cache-dir -c /tmp/constraints.txt "${wheel}" \
 && rm -f /tmp/*.whl /tmp/constraints.txt

ENV PATH=/opt/atlasc/bin:/usr/bin:/bin PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /client
WORKDIR /client
# It runs a command and ends: there is nothing to ask for its health.
HEALTHCHECK NONE
ENTRYPOINT ["atlasc"]

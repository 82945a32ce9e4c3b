# A service whose programs GPUs compute. Build it where the wheel is (make wheels WHEELS_ARGS=--cuda):
#
#   docker build -f packaging/docker/server-cuda.Dockerfile -t atlasc-server-cuda .
#   docker run --gpus all --read-only --tmpfs /tmp --cap-drop ALL -p 8000:8000 \
#     -v /srv/bundle:/bundle:ro -v atlasc-state:/state atlasc-server-cuda --plain-http
#
# The machine has NVIDIA's driver and container toolkit, which puts the driver into the container. The
# wheel has CUDA's runtime inside, so the base is that of server.Dockerfile.
#
# --plain-http says that a proxy in front has TLS. Else give --tls-cert and --tls-key, and
# --health-cmd with the name in the certificate.
#
# The image holds no bundle, no key and no token. Keys, jobs and tokens lie in the volume /state.
FROM debian:13.2-slim@sha256:4bcb9db66237237d03b55b969271728dd3d955eaaa254b9db8a3db94550b1885

RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/atlasc \
 && useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin atlasc \
 && install -d -o atlasc -g atlasc -m 0700 /state

COPY constraints.txt dist/cuda/atlasc-*-cp313-cp313-manylinux_*_x86_64.whl /tmp/
RUN wheel="$(ls /tmp/atlasc-*.whl)" \
 && /opt/atlasc/bin/pip install --no-cache-dir -c /tmp/constraints.txt "${wheel}[serve]" \
 && rm -f /tmp/*.whl /tmp/constraints.txt

# Of the driver, what computes; not what draws.
ENV PATH=/opt/atlasc/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 NVIDIA_DRIVER_CAPABILITIES=compute
USER 10001:10001
VOLUME /state
EXPOSE 8000
STOPSIGNAL SIGTERM
# A service that is stopping, or whose process for answers is gone, is not ready.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python3", "-c", \
  "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
ENTRYPOINT ["atlasc", "serve", "/bundle", "--state", "/state", "--host", "0.0.0.0", "--port", "8000"]

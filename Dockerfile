# Builds Nagaya and serves /etc/nagaya/nagaya.toml as an ordinary user on port 8080.
#
#   docker build -t nagaya .
#   docker run -p 8080:8080 -v ./nagaya.toml:/etc/nagaya/nagaya.toml:ro -v ./site:/srv/site:ro nagaya

FROM rust:1-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev libclang-dev make patch pkg-config rake ruby \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN cargo build --release --locked -p nagaya

FROM debian:bookworm-slim
RUN useradd --system --uid 10080 --no-create-home nagaya
COPY --from=build /build/target/release/nagaya /usr/bin/nagaya
COPY --from=build /build/packaging/docker.toml /etc/nagaya/nagaya.toml
COPY --from=build /build/packaging/welcome /build/examples/demo/site/nagaya.svg /build/examples/demo/site/style.css /usr/share/nagaya/welcome/
USER nagaya
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/nagaya"]
CMD ["serve", "-c", "/etc/nagaya/nagaya.toml"]

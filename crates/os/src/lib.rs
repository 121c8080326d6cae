//! What the gateway asks of Linux: sockets, descriptors over Unix sockets, openat2, signals, /proc.

"""Who computes the jobs of a service: a process of this machine, or actors of a Ray cluster."""

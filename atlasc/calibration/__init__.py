"""The values that the arguments of nonlinear ops reach on real inputs."""

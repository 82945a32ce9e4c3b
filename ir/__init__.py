"""The intermediate representation of atlasc: nn, poly and ckks modules in SSA form."""

"""What a notebook holds: the lab, sweeps, settings and stores."""

"""Tables, pictures and reports of experiments, made from result files only."""

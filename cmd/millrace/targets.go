package main

import "github.com/millrace/millrace/cmd/internal/lab"

// targets lists what this binary can measure: every pipeline, and bare.
func targets() lab.Registry {
	all := lab.Pipelines()
	all[lab.BareName] = lab.OpenBare
	return all
}

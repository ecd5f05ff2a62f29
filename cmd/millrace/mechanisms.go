package main

import "github.com/spf13/cobra"

func (f walFlags) benchMechanisms(cmd *cobra.Command, w world) error { return nil }

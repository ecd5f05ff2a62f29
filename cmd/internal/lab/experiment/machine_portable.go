//go:build !linux

package experiment

import "github.com/millrace/millrace/cmd/internal/lab/archive"

// The lab runs on other systems than Linux too; there these fields stay empty.
func readMachine(*archive.Environment, string) {}

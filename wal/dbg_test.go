package wal
import "testing"
func TestDbg(t *testing.T){ crashRun(t,2) }
var debugN int

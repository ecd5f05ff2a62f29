// Package diagnosis has the words in which a host speaks of the health of its groups. Group.Explain,
// Group.Status and Group.Founding of package host return them. They are values: they have no lock, and any
// goroutine may read its own copy.
//
// A Diagnosis names each Cause with evidence and a remedy. Programs match its Code; people read its String.
//
// Reading order: code.go, diagnosis.go, status.go, founding.go.
package diagnosis

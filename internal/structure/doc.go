// Package structure has tests only. They hold the repository to what its documents say: which package may import which,
// which files and tests a document names, and that the program in the README compiles.
package structure

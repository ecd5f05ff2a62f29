// Package structure has only tests. They hold the repository to its documents: which package may import
// which, which files and tests a document names, which words mean what (docs/glossary.md), and that the
// program in the README compiles.
package structure

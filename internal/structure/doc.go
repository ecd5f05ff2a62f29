// Package structure has only tests. They hold the repository to its documents: the imports of packages, the
// files and tests that a document names, words (docs/glossary.md) and sentences. They compile the program in
// the README.
package structure

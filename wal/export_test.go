package wal

// Enumerates is for the tests outside of the package.
var Enumerates = enumerates

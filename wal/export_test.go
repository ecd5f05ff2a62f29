package wal

// Enumerates exports enumerates to the tests in package wal_test.
var Enumerates = enumerates

// Package abuse does to hosts what hurts them: the mistakes of operators and users (misuse_test.go), with
// what each side says then as a page (testdata/misuse.md), and requests about members that race with
// restarts, with each other and with the end of their host (plans_test.go).
//
// It uses what a program can use, exported API, real directories and real sockets. Lies on the wire need the
// records of package host, so they are tested there.
package abuse

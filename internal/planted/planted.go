// Package planted holds bugs on purpose. Each is a constant that is false, unless the build tag of its name asks for it;
// then the judges must find it (sim/planted_test.go), or they judge nothing. A false constant costs nothing: the compiler
// removes what hangs on it.
package planted

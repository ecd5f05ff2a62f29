// Package config is the configuration of the service: etcd's flags, their environment variables, and etcd's
// configuration file.
//
// Every flag of etcd 3.7 is known (flags.go). Each has one of three effects. It works; it is accepted,
// and a sentence says why it changes nothing here; or it is refused, and a sentence says what to do. So
// a command line that starts etcd starts the service, or names the reason.
//
// The precedence is etcd's. With --config-file, flags and environment are ignored. Otherwise a flag wins over
// its environment variable, and MILLRACE_X wins over ETCD_X.
package config

// Uses what a WASI program has: its output says what it found. With the argument "trip" it
// does the task of that name instead: one program is compiled once.
package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func quoted(values []string) string {
	for i, value := range values {
		values[i] = strconv.Quote(value)
	}
	return "[" + strings.Join(values, ",") + "]"
}

func names(folder string) string {
	entries, _ := os.ReadDir(folder)
	found := []string{}
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return quoted(found)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "trip" {
		trip()
		return
	}
	input, _ := io.ReadAll(os.Stdin)
	if string(input) == "fail" {
		os.Stderr.WriteString("half a line")
		os.Exit(3)
	}
	began := time.Now()
	time.Sleep(time.Hour)
	slept := time.Since(began).Round(time.Second)
	data, _ := os.ReadFile("data/deep/a.txt")
	written := os.WriteFile("data/new.txt", data, 0o600) == nil
	_, outside := os.ReadFile("/data/../../etc/passwd")
	os.MkdirAll("/tmp/kept/here", 0o700)
	os.WriteFile("/tmp/one", []byte("1"), 0o600)
	more, _ := os.OpenFile("/tmp/one", os.O_APPEND|os.O_WRONLY, 0)
	more.WriteString("2")
	more.Close()
	os.Rename("/tmp/one", "/tmp/kept/two")
	two, _ := os.ReadFile("/tmp/kept/two")
	os.RemoveAll("/tmp/kept/here")
	os.Stderr.WriteString("slept")
	os.Stderr.WriteString(" for " + slept.String() + "\n")
	os.Stdout.WriteString(`{"input":` + string(input) +
		`,"args":` + quoted(os.Args) +
		`,"mode":` + strconv.Quote(os.Getenv("MODE")) +
		`,"data":` + strconv.Quote(string(data)) +
		`,"written":` + strconv.FormatBool(written) +
		`,"outside":` + strconv.FormatBool(outside == nil) +
		`,"two":` + strconv.Quote(string(two)) +
		`,"root":` + names("/") +
		`,"tmp":` + names("/tmp/kept") + "}\n")
}

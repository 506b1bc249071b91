CC ?= cc
CFLAGS ?= -O3 -march=native

check: check.c net.c net.h
	$(CC) -std=c99 -Wall -Wextra -Wpedantic $(CFLAGS) -o check check.c net.c
	./check vectors.bin

speed: check
	./check vectors.bin 100

.PHONY: speed

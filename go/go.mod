module example.org/vouch

go 1.21

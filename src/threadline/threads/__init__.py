"""Operations on threads: create, read, search, branch, save, transfer, copy and compact."""

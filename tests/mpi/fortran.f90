! SPDX-License-Identifier: Apache-2.0
! covers: src/mpi
! Collectives by the module mpi, whose functions are those of mpif.h, and by mpi_f08. Prints "right".
module old
  use mpi
  implicit none
contains
  logical function old_is_right()
    integer :: rank, n, error, i, root, here
    integer, allocatable :: counts(:), displs(:), all(:), mine(:)
    double precision :: x(3), y(3)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, n, error)
    root = n - 1
    x = [1d0, 2d0, 3d0] * (rank + 1)
    call MPI_Allreduce(x, y, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    old_is_right = error == MPI_SUCCESS .and. all_are(y, n * (n + 1) / 2)
    call MPI_Allreduce(MPI_IN_PLACE, x, 3, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. all_are(x, n)
    y = 0
    if (rank == root) then
      call MPI_Reduce(MPI_IN_PLACE, x, 3, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, error)
      old_is_right = old_is_right .and. all_are(x, n * n)
    else
      call MPI_Reduce(x, y, 3, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, error)
    end if
    call MPI_Bcast(x, 3, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. all_are(x, n * n)
    allocate (counts(n), displs(n), all(2 * n), mine(2 * n))
    counts = 2
    displs = [(2 * i, i = 0, n - 1)]
    mine = rank
    call MPI_Allgather(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. in_order(all)
    all = -1
    all(2 * rank + 1:2 * rank + 2) = rank
    call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, all, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. in_order(all)
    all = -1
    call MPI_Gather(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. (rank /= root .or. in_order(all))
    call MPI_Gatherv(mine, 2, MPI_INTEGER, all, counts, displs, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. (rank /= root .or. in_order(all))
    call MPI_Scatter(all, 2, MPI_INTEGER, mine, 2, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. mine(1) == rank .and. mine(2) == rank
    call MPI_Scatterv(all, counts, displs, MPI_INTEGER, mine, 2, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. mine(1) == rank .and. mine(2) == rank
    mine = rank
    call MPI_Alltoall(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. in_order(all)
    call MPI_Alltoallv(mine, counts, displs, MPI_INTEGER, all, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. in_order(all)
    call MPI_Reduce_scatter_block(all, mine, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. mine(1) == n * rank .and. mine(2) == n * rank
    call MPI_Reduce_scatter(all, mine, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. mine(1) == n * rank .and. mine(2) == n * rank
    here = bottom_is_right(root)
    old_is_right = old_is_right .and. here == 1
    call MPI_Barrier(MPI_COMM_WORLD, error)
    old_is_right = old_is_right .and. error == MPI_SUCCESS
  end function

  ! A broadcast from MPI_BOTTOM, by a type that has the address.
  integer function bottom_is_right(root)
    integer, intent(in) :: root
    integer :: rank, error, at_bottom
    integer, target :: word
    integer(kind=MPI_ADDRESS_KIND) :: address(1)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    word = merge(42, 0, rank == root)
    call MPI_Get_address(word, address(1), error)
    call MPI_Type_create_hindexed(1, [1], address, MPI_INTEGER, at_bottom, error)
    call MPI_Type_commit(at_bottom, error)
    call MPI_Bcast(MPI_BOTTOM, 1, at_bottom, root, MPI_COMM_WORLD, error)
    call MPI_Type_free(at_bottom, error)
    bottom_is_right = merge(1, 0, look(word) == 42)
  end function

  integer function look(word)
    integer, volatile :: word
    look = word
  end function

  logical function all_are(values, factor)
    double precision, intent(in) :: values(3)
    integer, intent(in) :: factor
    all_are = all(values == [1d0, 2d0, 3d0] * factor)
  end function

  logical function in_order(values)
    integer, intent(in) :: values(:)
    integer :: i
    in_order = all(values == [(i / 2, i = 0, size(values) - 1)])
  end function
end module

module new
  use mpi_f08
  implicit none
contains
  logical function new_is_right()
    integer :: rank, n
    integer, allocatable :: ranks(:)
    real :: x(2)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, n)
    x = real(rank + 1)
    call MPI_Allreduce(MPI_IN_PLACE, x, 2, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
    new_is_right = all(x == real(n * (n + 1) / 2))
    allocate (ranks(n))
    call MPI_Allgather(rank + 1, 1, MPI_INTEGER, ranks, 1, MPI_INTEGER, MPI_COMM_WORLD)
    new_is_right = new_is_right .and. sum(ranks) == n * (n + 1) / 2 .and. ranks(n) == n
    call MPI_Bcast(ranks, n, MPI_INTEGER, 0, MPI_COMM_WORLD)
    call MPI_Barrier(MPI_COMM_WORLD)
  end function
end module

program fortran
  use mpi
  use old, only: old_is_right
  use new, only: new_is_right
  implicit none
  integer :: error, rank, wrong
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  wrong = merge(0, 1, old_is_right()) + merge(0, 1, new_is_right())
  call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0) print '(a)', merge('right', 'wrong', wrong == 0)
  call MPI_Finalize(error)
end program

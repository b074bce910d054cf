"""The thresholds at which schedules change: numbers that measuring chose, where no law of the hardware does.

Beside ``Target``, which says what the hardware is: ``Target.heuristics``. A device that measured
others brings its own, and ``mode="max-autotune"`` may try them: a knob may be named after a field.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristics:
    """The thresholds of passes, fusion and programs, then those of schedules in the order of their table.

    The table is in ``schedules.choose``.
    """

    split_min_elements: int = 1 << 16
    """The fewest elements of a reduction that is split in two: fewer are done before a second launch."""
    split_min_rows: int = 64
    """The fewest rows that a reduction of everything is cut into: a workgroup to each, or few cores work."""
    split_max_rows: int = 1 << 12
    """The most rows: what they come to is reduced by one workgroup, sixteen elements to a work-item."""
    split_min_row_length: int = 256
    """The fewest elements of such a row: one to each work-item of a workgroup."""
    split_row_multiple: int = 8
    """What the length of rows is a multiple of, in elements, where that can be: the widest vector access of
    16-bit floats."""
    split_min_inner_length: int = 32
    """The fewest elements of the rows that are reduced before what lies around them: a subgroup's width."""
    fuse_cheap_ops: int = 6
    """Up to how many simple ops an element is computed again by each kernel that reads it: a store and a load
    take as long. As many ops are looked at where costs are estimated."""
    fuse_long_ops: int = 50
    """From how many simple ops on an element is not computed several times for one row of few elements; from
    three times as many on for no row."""
    function_ops: int = 100
    """How many simple ops a mathematical function counts as: tens in vectors, more where there are none."""
    gather_ops: int = 7
    """How many simple ops a gathered element counts as: more than ``fuse_cheap_ops``: it misses caches."""
    fuse_min_shared_row: int = 32
    """How many neighbouring elements, at least, share what is computed once for them, so that it needs no
    buffer: a vector or a subgroup is not of use to fewer."""
    fuse_max_repeats: int = 64
    """For how many rows the same one is not computed again and again, where it is more than a few ops."""
    matmul_computed_max_columns: int = 32
    """Up to how many columns of a product its left operand is computed in it, once for each tile of them."""
    kernel_max_ops: int = 256
    """The most ops of one kernel: compilers take more than proportional time for more."""
    known_schedules: int = 2048
    """The most groups whose launches a process keeps, for programs with groups of the same structure; the
    ones that were not asked for longest go."""
    in_place_min_bytes: int = 1 << 18
    """From how many bytes on a result takes the place of an operand: smaller ones stay in the caches, and
    kernels whose buffers may be one are compiled apart from others."""
    lend_min_bytes: int = 1 << 18
    """From how many bytes on a temporary may lie in the memory of a result that is written later."""
    sum_max_products: int = 4
    """How many products of ``lend_min_bytes`` or more one kernel adds up: of more, as the gradients of a
    weight from many chunks are, each few are added as soon as they are there, and only their sum is kept."""
    batch_max_elements: int = 1 << 14
    """The most elements of a step that runs beside steps of other kernels, as alone it would not pay to wake
    all cores."""
    batch_max_distance: int = 8
    """By how many places a step moves forward at most to run beside others: what it makes is alive longer."""

    workgroup_read_ahead: int = 16
    """How many elements a work-item asks for before it waits for the first: more take registers, of which
    fewer work-items have room then."""
    workgroup_max: int = 256
    """The most work-items of a workgroup that is one of many."""
    access_min_elements: int = 1 << 17
    """From how many elements on vector accesses pay."""
    vector_row_min_length: int = 512
    """The shortest rows that tasks compute in vectors."""
    vector_piece: int = 4096
    """How many elements of such a row a task takes."""
    vector_function_min_elements: int = 1 << 16
    """From how many elements on functions of them are worth vectors of our own beside the compiler's."""
    narrow_row_accumulators: int = 4
    """How many vectors a sum of narrow floats is added up in, side by side."""
    nontemporal_min_bytes: int = 1 << 25
    """From how many bytes on the caches have forgotten a result's beginning when its end is stored: it may
    bypass them."""
    vector_remainder: int = 16
    """Up to how many elements what is left of a row is no loop for vectors: as much code again."""
    transpose_tile_side: int = 16
    """The rows and columns of a tile that a task transposes in its own memory: a cache line of float32."""
    transpose_min_length: int = 9
    """From which length on an axis along which an operand lies packed makes it a transposed one: the lines of
    the caches that a shorter one takes stay there meanwhile."""
    access_max_lanes: int = 8
    """The most elements of one vector access."""
    grid_stride_elements: int = 4
    """How many elements, far apart, a work-item computes."""
    grid_stride_min_elements: int = 1 << 20
    """From how many elements on."""
    row_min_length: int = 32
    """Rows from this length on are worth vectors, or several work-items."""
    sum_max_length: int = 65536
    """The most elements of a float sum that are added up in one piece: longer ones lose bits."""
    sum_block: int = 32
    """The most elements of a float sum that are added one after the other: the error of the sum is that of as
    many additions for each level of blocks, and of few blocks what joins them would show beside the loads."""
    lanes_in_two_steps: int = 32
    """From how many lanes on what a row has beside whole steps of all of them is taken in fewer first: rows
    that are not whole lanes have much of it."""
    lanes_second_share: int = 8
    """By which factor fewer."""
    row_min_chunk: int = 1024
    """The fewest elements of a chunk of a row that tasks reduce."""
    column_chunk: int = 128
    """The fewest rows of a chunk of columns that work-items go down side by side."""
    serial_join_max_parts: int = 1024
    """The most parts that a work-item joins alone."""
    workgroup_join_max_parts: int = 4096
    """The most parts that a workgroup joins."""
    workgroup_join_min_parts: int = 8
    """The fewest: fewer are joined by single work-items."""
    single_task_elements: int = 1 << 15
    """Up to so many elements a reduction is left to one task, which may be the last one of another kernel."""
    row_piece_min_vectors: int = 8
    """The fewest steps of all lanes that a piece of a row is worth."""
    window_unroll: int = 32
    """The most elements of a window, of several axes, that code names one by one."""
    panel_width: int = 1024
    """The columns of a panel of one reduction."""
    panel_min_rows: int = 32
    """The fewest rows of a chunk of these."""
    panel_max_rows: int = 1024
    """The most rows."""
    panel_unroll: int = 8
    """How many rows are added at a time: the states are loaded and stored once for all of them."""
    panel_max_code: int = 32
    """As long as that makes no more than so many ops of code."""
    multi_panel_width: int = 2048
    """The columns of a panel of several reductions."""
    multi_panel_min_rows: int = 32
    """The fewest rows of a chunk of these."""
    multi_panel_max_rows: int = 2048
    """The most rows."""
    multi_panel_unroll: int = 4
    """How many rows are added at a time."""
    multi_panel_max_code: int = 64
    """As long as that makes no more than so many ops of code."""
    column_read_ahead: int = 4
    """How many rows a work-item asks for before it adds the first; twice as many where little is computed of
    them."""
    column_max_rows: int = 1024
    """The most rows of a work-item's stretch."""
    column_workgroup: int = 256
    """The work-items of a workgroup that reduces columns."""
    column_max_depth: int = 32
    """The most of them that share a column: those beside each other read a line of the caches."""
    column_join_read_ahead: int = 16
    """How many workgroups' results are asked for before the first is added."""
    row_array_bytes: int = 1 << 14
    """The bytes of the largest row that a task keeps in an array of its own."""
    row_prefetch_max_length: int = 1 << 14
    """The longest rows of which the next is fetched while one is gone over: both stay in the cache."""
    row_registers: int = 32
    """The most elements of a work-item whose loads are written out: they are kept in registers."""
    row_vector_registers: int = 64
    """The same where they come in vectors."""
    row_open_turns: int = 8
    """How many elements, or vectors, a work-item has room for at least where the length of rows is open."""
    row_vectors: int = 4
    """The vectors of a work-item where a few work-items are enough for a row."""
    row_in_registers_max_length: int = 1 << 14
    """The longest rows that are kept in registers: several workgroups then have room beside each other."""
    matmul_min_part: int = 512
    """The shortest piece of an inner axis that is cut."""
    attention_rows: int = 96
    """How many keys a task has the scores of at a time: their rows stay in the nearest cache."""
    attention_rows_gpu: int = 16
    """How many keys a work-item has the scores of at a time, in memory of its own."""
    attention_min_part: int = 64
    """The fewest keys of a part that is gone over by itself: joining takes as long as some of them."""
    matmul_computed_ahead: int = 64
    """How many elements of a row of a computed left operand are computed before they are used."""
    scan_min_chunk: int = 1024
    """How many elements a chunk of a row has at least."""
    scan_workgroup: int = 256
    """The most work-items of a workgroup that scans."""
    scan_elements: int = 4
    """How many neighbouring elements a work-item takes."""
    scan_max_elements: int = 8
    """The most, where they come in vectors."""
    scan_workgroup_min_length: int = 64
    """Rows from this length on are worth a workgroup."""
    scan_chunk_min_tiles: int = 8
    """Rows of fewer tiles are left to one workgroup: to know the chunks' totals takes two launches more."""
    scan_busy_rows_share: int = 16
    """Rows that keep a device busy are fewer than ``tasks_to_fill`` by this factor."""
    scan_busy_chunks_share: int = 8
    """And the chunks of all rows by this."""
    rank_sort_max_length: int = 48
    """Up to which length rows are sorted by rank."""
    bucket_pass_min_chunk: int = 4096
    """How many elements a chunk of a row has at least."""
    bucket_pass_max_chunks: int = 64
    """Into how many chunks a row is cut at most."""
    radix_elements: int = 8
    """How many elements a work-item of a radix pass takes."""
    radix_tile_bytes: int = 3 << 13
    """The most bytes of local memory that the elements of a tile take."""
    partition_elements: int = 16
    """How many elements a work-item of a stable partition takes."""
    scatter_owners: int = 64
    """The most owners of rows, each of which reads all indices."""
    scatter_few_indices: int = 1024
    """Up to so many indices every owner reads them all."""
    scatter_read_by_all: int = 64
    """Up to so many indices every work-item does."""
    scatter_wide_row: int = 32
    """From so many columns on neighbouring work-items read one index together."""
    scatter_few_indices_of_wide_rows: int = 1 << 14
    """Up to so many indices they are owners that read them all."""
    scatter_read_ahead: int = 16
    """How many indices an owner reads before it writes."""
    scatter_row_min_workgroup: int = 32
    """The fewest work-items of a workgroup that scatters along a row."""
    scatter_row_max_workgroup: int = 256
    """The most of them."""
    scatter_row_max_indices: int = 8
    """The most indices that a work-item of them takes at a time."""
    scatter_claim_rounds: int = 16
    """How often the least numbers of places are found: few places are left then, whose first indices look for
    the rest."""
    scatter_row_busy_rows: int = 64
    """So many rows keep the device busy, however long each of them takes."""
    scatter_row_max_length: int = 1 << 16
    """Up to so many indices a row of fewer rows is done sooner than all indices are sorted."""
    scatter_rank_min_indices: int = 1 << 9
    """The fewest indices that are ranked; fewer are read by owners."""
    scatter_rank_max_indices: int = 1 << 14
    """The most; more are sorted."""
    scatter_rank_unroll: int = 4
    """How many indices a work-item compares with its own at a time."""
    scatter_rank_read_ahead: int = 8
    """How many values of one row are read before they are added."""
    scatter_segment_piece: int = 256
    """How many sorted indices of one row a work-item adds up."""
    fusion_max_buffers: int = 28
    """The most buffers of a kernel that several roots share: a language was seen that allows 31."""
    fusion_recent_readers: int = 16
    """How many of the latest groups that read a value are asked whether another reader may join them."""
    fusion_small_domain: int = 1 << 17
    """Up to how many elements few tasks or work-items may go over a domain; what is computed of so few does
    not wait in a group for others."""
    fusion_few_rows_share: int = 32
    """Rows are few where they are fewer than ``tasks_to_fill`` by this factor."""
    busy_share: int = 4
    """Rows or columns keep a device busy from this part of ``tasks_to_fill`` or ``work_items_to_fill`` on."""
    row_elements_per_work_item: int = 1 << 7
    """The most elements of a row for each work-item of its workgroup, where other cores are idle."""
    row_per_task_max_length: int = 1 << 15
    """The longest rows, of too few for all cores, that tasks go over several times."""
    workgroup_row_max_length: int = 1 << 15
    """The longest row of one workgroup, where others that could share it have nothing to do."""
    column_panel_min_width: int = 32
    """The fewest columns of a panel of several passes, some cache lines; its width is a multiple of them."""
    column_panel_elements: int = 1 << 16
    """How many elements of each operand such a panel should have, so that it stays in the cache."""
    column_panel_max_rows: int = 128
    """The longest columns of a large domain there; eight times that where compilers make the vectors."""
    recompute_min_elements: int = 1 << 17
    """From how many elements on a value may leave the caches before it is read: it may be computed again."""
    recompute_ops_per_byte: int = 16
    """How many simple ops a processor does while its memory moves a byte: 10 on an H100, 8 on 4 cores of
    AVX2. A function counts as ``function_ops`` of them."""
